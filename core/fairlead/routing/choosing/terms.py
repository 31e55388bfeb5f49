"""Terms and rules that several policies record with their decisions."""

from fairlead.routing.contracts.weighing import TOTAL, DecisionRule, Term, Unit

DECODE_TOKENS = Term(name="decode_tokens", words="held by running decodes", unit=Unit.TOKENS)
REQUEST_COUNT = Term(name=TOTAL, words="requests there", unit=Unit.REQUESTS)
BEST_SCORE = DecisionRule(code="best-score", because="its score was the best", order=(TOTAL,), ties="to the less loaded, then by id")
NAME_SHARED = "several conversations share the name that the client gave its session"
HOST_STAYS = "its session is bound there"
HOST_GONE = "the session's host was gone, and it had the fewest tokens waiting"
