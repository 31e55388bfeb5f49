"""The sandbox: Fairlead and everything it needs on one bare machine, without containers.

It consists of an embedded Postgres, a small Kubernetes API, a kubelet that runs pods as processes, and a supervisor
that starts them all. `fairlead up` starts the sandbox; `status`, `logs` and `down` manage it. Its state lives in one
directory and survives restarts.

It is for trying, developing and testing Fairlead. Its Kubernetes API and its kubelet must never be offered for
production, and nothing that runs under them may know that it runs in a sandbox. `fairlead serve` uses only the
supervisor, the embedded Postgres and the state directory (`runs`). Its danger: processes may be left behind. `down`
must find and end every process of the sandbox, even after the supervisor was killed. Processes are recognised by pid
*and* start time, and by a mark in their environment.
"""
