"""The command ``lightning-rollout-is report``: from event files to verdicts, a page and a table in the terminal."""
