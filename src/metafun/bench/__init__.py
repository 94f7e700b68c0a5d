"""Benchmarks: how the shipped models compare with what a user would pick instead."""
