"""Attacks a router while it serves other pools and clients, and prints the effects on them.

    python -m benchmarks.attacks [--attacks NAME,…] [--seconds 4] [--rounds 3] [--size 1.0] [--soak-minutes M]

One router process serves eight pools of two mock engines each. Seven pools have a steady load, a request every 50 ms
each. The eighth pool is attacked by its engines or by clients, or the router's process is suspended. Rounds without and
with the attack alternate. If the attack is made by engines, the rounds without it have the same clients and requests,
but the engines behave like the other engines.

The line of an attack has these figures: the number of requests to the seven pools during the attack, and how many of
them failed; the p50 and p99 of these requests without and with the attack; the p99 `alone`; the number of connections
that the attacker opened, and how many of them were refused; the router's memory and open files before the attack, at
most, and 10 s after it; and the seconds until the router served a new client. The p99 `alone` is measured for attacks
by engines, while the engines send the same bytes to another program and not to the router. It shows the cost of the
attacker's own process and of the kernel. Compare only figures of the same run.

`--size` multiplies an attack's connections or sessions. With rising sizes, `idle`, `half-heads` and `half-bodies` find
the breaking point. With `--size 50`, `sessions` sends a million sessions and prints the bytes that each took.
`--soak-minutes` runs all attacks in turn for this number of minutes. At the end it prints the slope of the router's
memory, and its open files.
"""
