"""Runs campaigns and their mutants, several at a time, each in a process.

    for outcome in Jobs(seed).run(jobs): ...

An outcome is what campaign.run() returns, with the mutant's name if it was
one.
"""

import asyncio
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import client
import mutants
from campaign import KEPT, run
from campaigns_configurations import C14
from campaigns_memory import C13, C13f, shim
from campaigns_moves import C15, C16
from campaigns_nginx import C0, C7, C8, C12, C7p, C8a, C8e, C8u
from campaigns_peers import C9, C10
from campaigns_reload import C17
from campaigns_sets import C4, C5, C18, C4n
from campaigns_power import C20, C20d, C20n
from campaigns_sqlite import C19, C21
from campaigns_redis import C1, C2, C3, C6, C11, C1e, C1n, C3a, C11l

CAMPAIGNS = {c.name: c for c in (
    C0, C1, C1e, C1n, C2, C3, C3a, C4, C4n, C5, C6, C7, C7p, C8, C8u, C8a, C8e, C9,
    C10, C11, C11l, C12, C13, C13f, C14, C15, C16, C17,
    C18, C19, C20, C20d, C20n, C21)}

STORES = 'shm', 'redis', 'sqlite'

HERE = os.path.dirname(os.path.abspath(__file__))

Job = collections.namedtuple('Job', 'name store n seed mutant')


def possible(names):
    """Those that this machine can run; the others are named."""
    for name in names:
        campaign = CAMPAIGNS[name]
        if getattr(campaign, 'possible', lambda: True)():
            yield name
        else:
            print('# %s: skipped, it needs %s' % (name, campaign.needs),
                  flush=True)


def real_jobs(names, seed, size, stores=STORES):
    """size: a function of a campaign, how many injections"""
    return [Job(name, store, size(CAMPAIGNS[name]), seed, '')
            for name in names for store in CAMPAIGNS[name].stores
            if store in stores and size(CAMPAIGNS[name])]


def mutant_jobs(names, seed, stores=STORES):
    return [Job(name, store, CAMPAIGNS[name].hunt, seed, mutant)
            for name in names for store in CAMPAIGNS[name].stores
            if store in stores for mutant in CAMPAIGNS[name].mutants
            if store in mutants.STORES.get(mutant, STORES)]


def work(job):
    """In a process of its own: runs the job, prints its outcome."""
    campaign = CAMPAIGNS[job.name]
    module = None
    if job.mutant:
        # rounds that end soon; it is over when one has noticed it
        module = mutants.build(job.mutant)
        campaign.patience = client.TIMEOUT = 6
        campaign.per_round = max(campaign.short,
                                 min(campaign.per_round, campaign.hunt // 4))
    play = getattr(campaign, 'run', None)
    outcome = asyncio.run(
        play(job.store, job.n, job.seed, module, job.mutant) if play
        else run(campaign, job.store, job.n, job.seed, module, job.mutant))
    outcome['mutant'] = job.mutant
    print(json.dumps(outcome))


def start(job):
    fd, name = tempfile.mkstemp(dir=KEPT)
    process = subprocess.Popen(
        [sys.executable, '-B', HERE, '--job', json.dumps(job)],
        stdin=subprocess.DEVNULL, stdout=fd, stderr=subprocess.STDOUT)
    os.close(fd)
    process.out = name
    return process


def outcome_of(job, process):
    process.wait()
    with open(process.out) as f:
        out = f.read()
    os.unlink(process.out)
    try:
        return json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        # a harness that fails is no pass
        return dict(name=job.name, store=job.store, mutant=job.mutant, n=0,
                    title=CAMPAIGNS[job.name].title, unit='', counts={},
                    violations=[['void', '', out[-3000:]]], missing=[],
                    seed=job.seed, kept=None, seconds=0, rounds=0,
                    strict=True)


def run_jobs(jobs, at_once):
    """Yields outcomes as they come."""
    os.makedirs(KEPT, exist_ok=True)
    shim()
    for mutant in sorted({job.mutant for job in jobs if job.mutant}):
        mutants.build(mutant)

    planned, running = list(jobs), []
    try:
        while planned or running:
            while planned and len(running) < at_once:
                job = planned.pop(0)
                running.append((job, start(job)))
            for item in running:
                if item[1].poll() is not None:
                    running.remove(item)
                    yield outcome_of(*item)
                    break
            else:
                time.sleep(0.1)
    finally:
        for _, process in running:
            process.terminate()


def verdict(outcome):
    """passed, FAILED, void, measured; for mutants: caught or MISSED"""
    wrong = [v for v in outcome['violations'] if v[0] != 'void']
    void = len(wrong) != len(outcome['violations'])
    if outcome['mutant']:
        return 'caught' if wrong else 'MISSED'
    if wrong:
        return 'FAILED'
    if void or outcome['missing']:
        return 'void'
    return 'passed' if outcome['strict'] else 'measured'
