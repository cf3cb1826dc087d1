"""Value decomposition: VDN, QMIX, MASER, LDSA, ROMA."""
