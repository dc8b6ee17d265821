"""Ways to bring an operator back after a crash, each a class that a host drives.

A host owes every approach the same three things, in this order: append what a turn records and wait
until it is durable before forwarding results; after a crash, rebuild from the log before anything
else; deliver input again from where the rebuilt operator says.  Watermarks need not come with it:
what they decided is in the log, and a replay does not listen to them.

An approach that comes with Rewake has a file of its own and one line here, which registers it.
"""

from rewake.recovery import amnesia as _amnesia  # noqa: F401
from rewake.recovery import upstream_backup as _upstream_backup  # noqa: F401
from rewake.recovery.eventual import approach as _continuous_eventual  # noqa: F401
from rewake.recovery.instant import approach as _instant_checkpoints  # noqa: F401
from rewake.recovery.standby import active as _active_standby  # noqa: F401
from rewake.recovery.standby import passive as _passive_standby  # noqa: F401
