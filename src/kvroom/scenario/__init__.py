"""The question: a Scenario and the parts of it that have rules of their own."""
