"""Scenario to Plan: place the model on the machine, ask the engine, sum up."""
