"""Consumer groups over a coordinator that dies again and again: members, what they saw, and what that must fulfil.

`history` judges, whoever wrote it down. `members` and `modern` are the members of the simulated world, `machine` is the
broker that dies at chosen points, `scenario` puts them together, one run per seed, and `defects` shows that it bites.
"""
