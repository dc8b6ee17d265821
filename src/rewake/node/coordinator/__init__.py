"""The coordinator: epochs, who is where, who is alive, who is started again."""
