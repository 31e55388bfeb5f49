"""Attacks a router while it serves other pools and clients, and prints the effects on them.

    python -m benchmarks.attacks [--attacks NAME,…] [--seconds 4] [--rounds 3] [--size 1.0] [--soak-minutes M]

One router process serves eight pools of two mock engines each. Seven pools have a steady load, a request every 50 ms
each. The eighth is attacked by its engines or by clients, or the process is suspended. Rounds without and with the
attack alternate. In rounds without an attack by engines, the same clients send requests to the same engines, which then
behave like the other engines. The line of an attack has: the number of requests to the seven pools during the attack
and how many of them failed, and their p50 and p99 without and with the attack. For attacks by engines it has the p99
while the same engines send the same bytes to a program other than the router (`alone`), which is the cost of the
attacker's own process and the kernel. It also has the number of connections that the attacker opened and that were
refused, the router's memory and open files before, at most and 10 s after, and the seconds until it served a new
client. Compare only figures of the same run.

`--size` multiplies an attack's connections or sessions: `idle`, `half-heads` and `half-bodies` at rising sizes find the
breaking point, and `sessions` at `--size 50` is a million sessions, with the bytes that each took. `--soak-minutes`
runs all attacks in turn for this number of minutes, and at the end prints the slope of the router's memory and its open
files.
"""
