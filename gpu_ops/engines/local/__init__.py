"""The engine of batches: a plan over Arrow data in this process, on one device."""
