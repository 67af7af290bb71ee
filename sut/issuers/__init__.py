"""Who issues the queries: LoadGen, rows in order, or a closed loop; each in a process of its own."""
