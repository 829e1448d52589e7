"""What is asked of whole partitioned modules, and done to them before their code is generated."""
