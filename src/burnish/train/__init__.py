"""Methods of the verb train: one file each."""
