"""What Spark itself offers for the same work; the only place here that sees pyspark."""
