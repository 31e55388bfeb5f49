"""Attacks a router while it serves others, and prints the effects on the others.

    python -m benchmarks.attacks [--attacks NAME,…] [--seconds 4] [--rounds 3] [--size 1.0] [--soak-minutes M]

One router process serves eight pools of two mock engines each. Seven have a steady load, a request every 50 ms each;
the eighth is attacked by its engines or by clients, or the process is suspended. Rounds without and with the attack
take turns; without an engine's attack, the same clients ask the same engines, which answer as others do. An attack's
line has: the seven pools' requests during the attack and the number that failed, their p50 and p99 without and with it,
and for engines' attacks the p99 while the same engines send the same bytes to somebody else than the router (`alone`:
what the attacker's own process and the kernel cost), the connections that the attacker opened and that were refused,
the router's memory and open files before, at most and 10 s after, and the seconds until it served a new client. Compare
figures of one run only.

`--size` multiplies an attack's connections or sessions: `idle`, `half-heads` and `half-bodies` at rising sizes find the
breaking point, and `sessions` at `--size 50` is a million sessions, with the bytes that each took. `--soak-minutes`
runs all attacks in turn for this number of minutes, and prints the slope of the router's memory and its open files at
the end.
"""
