"""Lethe's harness: runs any method against any evaluator, and names neither.

Reading order: `contracts` (the words), `plugins` (names to classes), `planning` (a sweep file
to trials), `execution.trial` (one trial: erase, then measure), `records` (what is kept),
`reporting` (what is shown). The doors are `sweep`, `collate`, `pretrain` and `cli`.
"""
