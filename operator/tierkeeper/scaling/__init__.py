"""From an assessment to a decision: the levers, the guards, arbitration. Pure; time is an argument."""
