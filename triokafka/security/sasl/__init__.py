"""SASL mechanisms without I/O: both ends of PLAIN, SCRAM and OAUTHBEARER."""
