"""Runs clients through faults, and judges what came of it."""

import concurrent.futures
import os
import shutil

from guide import BUILD
from network import effect_of

CELLS = BUILD + '/cells'


def run_programs(rig, programs, faults, jobs=16):
    """Each program of the guide with each fault, each in a process of its
    own; the cells.  Those of Redis come first and alone: it comes up when all
    of them have met a gateway without it.  No program sends anything that
    would keep a connection open before."""
    shutil.rmtree(CELLS, ignore_errors=True)
    cells = []

    def one(program, cell):
        cell.result = program.run(cell.url, '%s/%s-%s' % (
            CELLS, program.name, cell.fault.name))
        cell.over = True

    for redis in (True, False):
        pairs = [(program, rig.cell('guide: ' + program.title, fault))
                for fault in faults for program in programs
                if fault.name != 'kept'
                and (fault.gateway == 'redis') == redis]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda pair: one(*pair), pairs))
        cells += [cell for _, cell in pairs]
    shutil.rmtree(CELLS, ignore_errors=True)
    return cells


def run_libraries(rig, libraries, faults):
    """Each library with each fault: one process for each library, and in it
    all faults at once."""
    rows = [(library, [rig.cell(library.name, fault) for fault in faults
                       if library.takes(fault)]) for library in libraries]
    with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
        list(pool.map(lambda row: row[0].start(), rows))
        list(pool.map(lambda row: row[0].run(row[1]), rows))
    return [cell for _, cells in rows for cell in cells]


def success(cell):
    return 200 <= ((cell.result or {}).get('status') or 0) < 300 \
        and 'error' not in cell.result


def answered(cell):
    """The client has the answer of the execution, whole."""
    return success(cell) \
        and effect_of(cell.result.get('body')) in cell.executions


def judge(rig, cell, must_answer=False, may_be_cut=False):
    """What is wrong with this cell: a list of sentences.  may_be_cut: the
    client is known to take half an answer for a whole one."""
    wrong = []
    if not cell.requests:
        return ['the client has sent nothing: %r' % cell.result]
    if len(cell.executions) > 1:
        wrong.append('executed %d times' % len(cell.executions))
    if len(set(cell.requests)) > 1:
        wrong.append('another key or body in a retry: %r'
                     % set(cell.requests))
    if cell.result is None:
        wrong.append('the client has not ended')
    elif success(cell) and not answered(cell) and not may_be_cut:
        wrong.append('success without the answer: %r' % cell.result)
    if must_answer and not cell.fault.ends and not answered(cell):
        wrong.append('no answer: %r' % cell.result)
    return wrong + judge_again(rig, cell)


def judge_again(rig, cell):
    """The same key afterwards: the answer, or an outcome that is unknown."""
    before = len(cell.executions)
    again = rig.ask_again(cell)
    if len(cell.executions) > max(before, 1):
        return ['executed when asked again']
    unknown = cell.fault.upstream in ('silent', 'reset')
    if unknown and again.status == 409 and again.code == 'outcome_unknown':
        return []
    status = 500 if cell.fault.upstream == '500' else 201
    if again.status == status and effect_of(again.body) in cell.executions \
            and (again.replayed or not before):
        return []
    return ['asked again: %r' % again]


def short(cell):
    """For the table: how the client has ended, and after how many tries."""
    tries = len(cell.requests)
    if answered(cell):
        return 'ok %d' % tries
    if success(cell):
        return '**cut** %d' % tries
    # Adyen's SDK reports a broken connection as a status 500
    status = (cell.result or {}).get('status')
    return '%s %d' % (status if status in cell.statuses
                      and status >= 300 else 'error', tries)


os.makedirs(BUILD, exist_ok=True)
