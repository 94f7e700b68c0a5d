"""Benchmarks of the shipped models against the estimators that a user would pick instead."""
