"""Routing: chooses the instance for a request, decides when to send the request, and remembers the results.

    scheduling              handles a request of one pool from its submission to its end
    admission               decides which requests are refused at their arrival
    queues                  hold the waiting requests, and decide the order in which they are sent
    policies                choose the instance for a request: one module for each policy
    choosing | explanations what policies choose with | recorded decisions in sentences
    knowledge               prefixes, bindings, rings, estimates, circuits
    contracts               the types and protocols that all these packages share

A package imports only packages below it in this list. No code of these packages waits, sleeps, logs or reads a clock:
the caller passes the time and sends the dispatched requests. The danger of this package: it runs for every request, so
each line costs every user. And a count that is not undone on some exit path makes an instance look busy forever.
"""
