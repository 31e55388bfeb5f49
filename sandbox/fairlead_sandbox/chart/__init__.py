"""`fairlead up --chart`: the sandbox installs the chart, and its kubelet runs what the chart says.

`values` says what the chart is given, `helm` installs it by Helm's own library in a process of its own, `setup` has the
steps around it, `process_table` their order, and `starting` is the command.
"""
