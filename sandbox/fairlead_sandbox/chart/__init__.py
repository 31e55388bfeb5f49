"""`fairlead up --chart`: the sandbox installs the chart, and its kubelet runs the chart's pods.

`values` has the chart's values, `helm` installs it with Helm's own library in a separate process, `setup` has the steps
around that, `process_table` their order, and `starting` is the command.
"""
