"""What every room stands on: time, types, errors of other libraries, Arrow's buffers. No plan, no device."""
