"""Nodes, their channels and their coordinator: pure classes that hosts drive."""
