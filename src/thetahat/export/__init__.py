"""Results for others: load data as robot vendors ask for it."""
