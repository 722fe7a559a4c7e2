"""Kerberos: credentials of this process, and local names of principals."""
