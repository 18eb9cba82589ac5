"""Any number of logs: read in shards, folded by workers, kept in a store, remembered as runs."""
