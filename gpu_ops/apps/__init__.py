"""Programs made of the package: the command line, the demo, the Spark event log's report, NEXMark."""
