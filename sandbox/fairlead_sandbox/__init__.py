"""Everything Fairlead needs, on one bare machine: embedded Postgres, a small Kubernetes API, a process kubelet
and a supervisor over all.

`fairlead up` starts it, `status`, `logs` and `down` look after it; state lives in one directory and survives restarts.
It exists to try, develop and test Fairlead: it must never be offered for production, and nothing outside this package
may know that it runs here. Its danger is leaving things behind: whatever it starts must be found again (pid *and* start
time, and a mark in the environment) and ended by `down`, also after the supervisor was killed.
"""
