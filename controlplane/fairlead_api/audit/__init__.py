"""The audit log as people read and verify it, and the authors of pool changes, taken from the Kubernetes API's own
audit log.

Entries are chained by `infra.audit_chain` and appended by `infra.audit_log`, in the transaction of the change. This
package must not change an entry. The danger here: with a changed rule for hashes, every older log would look forged.
"""
