"""Engines walk a plan: here on one machine, or on Spark, whose workers run fragments with the local engine."""
