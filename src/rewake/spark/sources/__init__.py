"""Streaming sources for Spark that need no jar: each is a module with one `DataSource` to register.

What always holds: a source's offsets name a range that can be read again, so that Spark repeats a
batch exactly.  Nothing here is imported until it is used, because each needs pyspark and a client.
"""
