"""What series and figures are read from: loads, latencies, refusals, moves, and what was in force."""
