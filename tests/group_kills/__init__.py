"""Consumer groups with a coordinator that is killed repeatedly: members, their observations, and the checks of these.

`history` checks the observations of any members. `members` and `modern` are the members of the simulated world,
`machine` is the broker that dies at chosen points, `scenario` combines them, one run per seed, and `defects` tests the
checks.
"""
