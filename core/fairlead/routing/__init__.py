"""Routing: chooses the instance for a request, decides when to send the request, and remembers the results.

    scheduling              from a submitted request to its end, for one pool
    admission | queues      what is refused early; what waits, and in which order it is sent
    policies                which instance a request should go to: one file each
    choosing | explanations what policies choose with; recorded decisions in sentences
    knowledge               prefixes, bindings, rings, estimates, circuits
    contracts               the types and protocols all of them speak

A package imports only those below it. Nothing here waits, sleeps, logs or reads a clock: the caller passes the time and
carries out the dispatches it is given. Its danger: it runs for every request, so each line costs every user, and a
count not undone on some exit path makes an instance look busy forever.
"""
