"""Where an epoch begins and ends, and what a state says."""

import numpy as np
import pytest

import feedline


def numbers_of(loader, steps=None):
    """Returns the numbers of an epoch, or of its first steps, and takes no step more."""
    found = []
    if steps == 0:
        return found
    for batch in loader:
        found += np.asarray(batch["n"]).tolist()
        if steps is not None and len(found) == 10 * steps:
            break
    return found


def test_iterating_again_is_the_next_epoch(numbers):
    loader = feedline.Loader(numbers.shuffle(50, seed=3))
    other = feedline.Loader(numbers.shuffle(50, seed=3))
    epochs = [[(b.epoch, b.step, np.asarray(b["n"]).tolist()) for b in loader] for _ in range(3)]
    assert [[e[:2] for e in epoch] for epoch in epochs] == [[(e, s) for s in range(5)] for e in range(3)]
    for epoch in epochs:
        assert sorted(sum((e[2] for e in epoch), [])) == list(range(50))
    assert epochs[0] != epochs[1]
    other.set_epoch(2)
    assert [np.asarray(b["n"]).tolist() for b in other] == [e[2] for e in epochs[2]]


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_break_and_iterating_again_begins_the_next_epoch(numbers, steps):
    loader = feedline.Loader(numbers)
    for epoch in range(4):
        for taken, batch in enumerate(loader, 1):
            assert (batch.epoch, batch.step) == (epoch, taken - 1)
            if taken == steps:
                break
        assert taken == steps
    assert loader.epoch == 3
    assert loader.report()["bad_records"] == 0


def test_len_steps_without_asking_for_the_end(numbers):
    """Lightning and DLIO take len() steps, never ask for the end, and iterate again."""
    loader = feedline.Loader(numbers)
    seen = []
    for _ in range(3):
        iterator = iter(loader)
        for _ in range(len(loader)):
            seen.append(next(iterator).step)
    assert seen == 3 * [0, 1, 2, 3, 4]


BEGUN = r"had taken step 0 of epoch 0 when another iteration of the loader began, or when load_state_dict\(\) or set_epoch\(\)"


def test_an_old_iterator_is_told(numbers):
    loader = feedline.Loader(numbers)
    first = iter(loader)
    next(first)
    second = iter(loader)  # which has not begun
    assert next(first).step == 1
    assert next(second).epoch == 1
    with pytest.raises(feedline.Error, match="had taken step 1 of epoch 0 when"):
        next(first)
    assert [b.step for b in second] == [1, 2, 3, 4]
    with pytest.raises(feedline.Error, match="had taken step 0 of epoch 2 when"):
        list(zip(loader, loader))


@pytest.mark.parametrize(
    "move",
    [
        lambda loader, state: next(iter(loader)),
        lambda loader, state: list(loader),
        lambda loader, state: loader.set_epoch(0),
        lambda loader, state: loader.set_epoch(7),
        lambda loader, state: loader.load_state_dict(state),
    ],
)
def test_a_loop_whose_loader_goes_elsewhere_is_told(numbers, move):
    loader = feedline.Loader(numbers)
    state = loader.state_dict(epoch=0, step=1)
    with pytest.raises(feedline.Error, match=BEGUN):
        for _ in loader:
            move(loader, state)


def test_an_iterator_that_has_given_all_steps_ends(numbers):
    """It may be asked for the end when the next epoch has begun already, as by what takes len() steps."""
    loader = feedline.Loader(numbers)
    first = iter(loader)
    for _ in range(len(loader)):
        next(first)
    assert next(iter(loader)).epoch == 1
    assert list(first) == []


def test_the_epoch_of_a_state_of_an_end_is_the_next_one(numbers):
    loader = feedline.Loader(numbers)
    assert len(list(loader)) == 5
    other = feedline.Loader(numbers)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 1 and next(iter(other)).epoch == 1
    steps = iter(loader)
    for _ in range(5):
        next(steps)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 2 and next(iter(other)).epoch == 2 == other.epoch


def test_an_iterator_begins_with_its_first_step(numbers):
    loader = feedline.Loader(numbers)
    early = iter(loader)
    loader.set_epoch(3)
    assert [(batch.epoch, batch.step) for batch in early] == [(3, step) for step in range(5)]
    state = loader.state_dict()
    other = feedline.Loader(numbers)
    early = iter(other)
    other.load_state_dict(state)
    assert next(early).epoch == 4


def test_set_epoch(numbers):
    loader = feedline.Loader(numbers)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        assert {b.epoch for b in loader} == {epoch}
    loader.set_epoch(1)
    assert [b.epoch for b in loader] == 5 * [1]
    next(iter(loader))
    loader.set_epoch(2)  # again from its beginning
    assert [(b.epoch, b.step) for b in loader] == [(2, s) for s in range(5)]


@pytest.mark.parametrize("taken", range(6))
def test_a_state_is_gone_on_from(numbers, taken):
    loader = feedline.Loader(numbers)
    whole = numbers_of(loader)
    loader.set_epoch(0)
    assert numbers_of(loader, taken) == whole[: 10 * taken]
    state = loader.state_dict()
    assert state == loader.state_dict(step=taken)
    rest = feedline.Loader(numbers)
    rest.load_state_dict(state)
    if taken == 5:  # the epoch has had all of its steps, so iterating is the next one
        assert [b.epoch for b in rest] == 5 * [1]
    else:
        assert numbers_of(rest) == whole[10 * taken :]
        assert [b.epoch for b in rest] == 5 * [1]


def test_a_state_of_any_step(numbers):
    """Something may take steps ahead of the program, which then says itself how far it is."""
    loader = feedline.Loader(numbers.shuffle(50, seed=3))
    epochs = [[np.asarray(batch["n"]).tolist() for batch in loader] for _ in range(3)]
    next(iter(loader))
    for epoch, step in [(0, 0), (1, 2), (2, 4), (2, 0)]:
        other = feedline.Loader(numbers.shuffle(50, seed=3))
        other.load_state_dict(loader.state_dict(epoch=epoch, step=step))
        assert (other.epoch, other.step) == (epoch, step)
        assert [np.asarray(batch["n"]).tolist() for batch in other] == epochs[epoch][step:]
    other.load_state_dict(loader.state_dict(epoch=1, step=5))
    assert (other.epoch, other.step) == (2, 0)
    assert loader.state_dict(epoch=3, step=1) == loader.state_dict(step=1) == loader.state_dict()
    assert loader.state_dict(epoch=2) == loader.state_dict(epoch=2, step=0)
    assert (loader.epoch, loader.step) == (3, 1)
    with pytest.raises(feedline.Error, match="there is no step 6: the epoch has 5 steps"):
        loader.state_dict(epoch=1, step=6)
    with pytest.raises(feedline.Error, match="epoch: -1 is not an integer .*counted from 0"):
        loader.state_dict(epoch=-1)


def test_load_then_set_epoch_keeps_the_place(numbers):
    loader = feedline.Loader(numbers)
    numbers_of(loader)
    numbers_of(loader, 2)
    state = loader.state_dict()
    other = feedline.Loader(numbers)
    other.load_state_dict(state)
    other.set_epoch(1)
    assert [(b.epoch, b.step) for b in other] == [(1, 2), (1, 3), (1, 4)]
    other.load_state_dict(state)
    other.set_epoch(3)
    assert [(b.epoch, b.step) for b in other] == [(3, s) for s in range(5)]


def test_the_state_of_an_end_keeps_its_place(numbers):
    loader = feedline.Loader(numbers)
    numbers_of(loader)
    state = loader.state_dict(step=5) if loader.epoch == 0 else feedline.Loader(numbers).state_dict(step=5)
    other = feedline.Loader(numbers)
    other.load_state_dict(state)
    other.set_epoch(0)
    assert list(other) == []  # the epoch has had all of its steps
    assert [b.epoch for b in other] == 5 * [1]


def test_after_an_error_the_next_epoch_begins(tmp_path):
    """The record behind the last whole step is bad: each epoch has one step, and then ends with the Error, or does not
    get there."""
    feedline.write(tmp_path / "x", [{"n": 0}, {"n": 1}, {"n": "bad"}])
    loader = feedline.Loader(feedline.tfrecords(tmp_path / "x").feature("n", int).batch(2))
    for epoch in range(3):
        loader.set_epoch(epoch)
        iterator = iter(loader)
        assert next(iterator).epoch == epoch
        with pytest.raises(feedline.Error):
            next(iterator)
    with pytest.raises(feedline.Error):
        list(loader)
    loader.set_epoch(7)
    assert next(iter(loader)).epoch == 7


def test_a_state_of_other_data_is_refused(numbers):
    state = feedline.Loader(numbers).state_dict()
    with pytest.raises(feedline.Error, match="batch"):
        feedline.Loader(numbers, batch={"global_batch_size": 5}).load_state_dict(state)
    with pytest.raises(feedline.Error, match="not a state"):
        feedline.Loader(numbers).load_state_dict({})


def test_a_state_of_another_version_is_refused(numbers):
    loader = feedline.Loader(numbers)
    state = loader.state_dict(step=2)
    with pytest.raises(feedline.Error, match="has version 2, but this feedline reads only version 1; use the version of feedline"):
        loader.load_state_dict({**state, "version": 2})
    assert (loader.epoch, loader.step, state["version"]) == (0, 0, 1)
    for readable in state, {"feedline": state["feedline"]}:  # the text alone is that of C++
        loader.load_state_dict(readable)
        assert next(iter(loader)).step == 2


def test_len(numbers):
    assert len(feedline.Loader(numbers)) == 5
    with pytest.raises(TypeError, match="no end"):
        len(feedline.Loader(numbers, epoch={"repeat": -1}))
    assert feedline.Loader(numbers, epoch={"repeat": -1}, devices="cpu")


def test_replicas_and_ranks_share_an_epoch(numbers):
    loader = feedline.Loader(numbers, devices="host:2")
    both = [[np.asarray(b["n"]).tolist() for b in step] for step in loader]
    assert [len(step) for step in both] == 5 * [2]
    assert sorted(sum((n for step in both for n in step), [])) == list(range(50))
    ranks = [feedline.Loader(numbers, rank=rank, world_size=2) for rank in range(2)]
    assert [[np.asarray(b["n"]).tolist() for b in pair] for pair in zip(*ranks)] == both


def test_a_loader_that_is_closed_while_it_is_iterated(numbers):
    loader = feedline.Loader(numbers)
    with pytest.raises(feedline.Error, match="the loader was closed"):
        for _ in loader:
            loader.close()
