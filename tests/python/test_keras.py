"""feedline.keras: training, validation and resuming with each backend of Keras."""

import pytest
from conftest import QUIET, python

BACKENDS = ["tensorflow", "jax", "torch"]

# The weight of a number is how often the model has been trained on it.
START = """
import os, sys, warnings
import keras, numpy as np, pytest
import feedline
from feedline.keras import SaveState, Validation, steps
from feedline.numpy import Loader
pipeline = feedline.Pipeline(sys.argv[1])
outputs = [
    {"name": "x", "feature": "n", "dtype": "FLOAT32", "one_hot": {"classes": 50}},
    {"name": "y", "feature": "n", "dtype": "FLOAT32"},
]
def loader_of(**fields):
    return Loader(pipeline, **{"output": outputs, "shuffle": {"buffer_size": 50}, **fields})
def number(y, prediction):
    return y
def counting_model(**arguments):
    model = keras.Sequential([keras.Input([50]), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, prediction: -prediction, **arguments)
    return model
def counts(model):
    return (10 * np.array(model.get_weights()[0]).ravel()).round(3).tolist()
class Watch(keras.callbacks.Callback):
    def __init__(self, die_after=None):
        super().__init__()
        self.epochs, self.batches, self.die_after = [], 0, die_after
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == self.die_after:
            raise InterruptedError
    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(counts(self.model))
"""


def run(code, pipeline, *arguments, backend):
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    done = python(START + code + "\nprint('good')", pipeline, *arguments, KERAS_BACKEND=backend, **QUIET)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stdout + done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_epoch_is_whole(numbers, backend):
    run(
        """
model, watch, loader = counting_model(metrics=[number]), Watch(), loader_of()
fit = dict(steps_per_epoch=len(loader), verbose=0, callbacks=[watch])
done = model.fit(steps(loader, "x", "y"), epochs=3, validation_data=Validation(loader_of(), "x", "y"), **fit)
assert watch.epochs == [[n] * 50 for n in (1.0, 2.0, 3.0)]
assert done.history["val_number"] == [24.5] * 3 == done.history["number"]
model.fit(steps(loader, "x", "y"), epochs=1, **fit)
assert watch.epochs[-1] == [4.0] * 50
held_out = Validation(loader_of(batch={"global_batch_size": 16, "last_batch_policy": "PARTIAL"}), "x")
assert (10 * model.predict(held_out, verbose=0)).ravel().round(3).tolist() == [4.0] * 50
""",
        numbers,
        backend=backend,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_going_on_in_the_middle_of_an_epoch(numbers, tmp_path, backend):
    run(
        """
folder = os.path.join(sys.argv[2], "state")
def train(die_after, every=2):
    model, watch, loader = counting_model(metrics=[number]), Watch(die_after), loader_of()
    save = SaveState(loader, folder, every=every)
    begin, rest = loader.epoch, dict(epochs=4, steps_per_epoch=len(loader), verbose=0)
    stopper = keras.callbacks.EarlyStopping(monitor="loss", patience=100)
    try:
        model.fit(steps(loader, "x", "y"), initial_epoch=begin, callbacks=[save, stopper, watch], **rest)
    except InterruptedError:
        pass
    return begin, watch, model
begin, watch, _ = train(8)  # epoch 0, and 3 of 5 batches of epoch 1; the last one is not saved
assert (begin, watch.epochs) == (0, [[1.0] * 50])
begin, watch, model = train(2)  # goes on with batch 2, and saves after batch 3
assert (begin, watch.batches, watch.epochs) == (1, 2, [])
begin, watch, model = train(None)
assert (begin, watch.batches, watch.epochs) == (1, 1 + 5 + 5, [[n] * 50 for n in (2.0, 3.0, 4.0)])
assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 20
assert sorted(os.listdir(folder)) == ["epoch-4-step-0.weights.h5", "state.json"]
begin, watch, model = train(None)  # is done
assert (begin, watch.batches, counts(model)) == (4, 0, [4.0] * 50)
""",
        numbers,
        tmp_path,
        backend=backend,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_folder_with_other_files_and_a_loader_that_was_used(numbers, tmp_path, backend):
    run(
        """
folder = os.path.join(sys.argv[2], "state")
os.makedirs(folder)
others = ["best.weights.h5", "epoch-9.weights.h5", "my-epoch-1-step-0.weights.h5", "notes.txt"]
for name in [*others, "epoch-0-step-3.weights.h5"]:
    open(os.path.join(folder, name), "w").close()
model, loader = counting_model(), loader_of()
rest = dict(steps_per_epoch=len(loader), verbose=0)
model.fit(steps(loader, "x", "y"), epochs=1, **rest)  # Keras takes some steps of the next epoch
save, watch = SaveState(loader, folder, every=2), Watch(die_after=8)
begin = loader.epoch
with pytest.raises(InterruptedError):
    model.fit(steps(loader, "x", "y"), initial_epoch=begin, epochs=9, callbacks=[save, watch], **rest)
assert watch.epochs == [[2.0] * 50] and sorted(os.listdir(folder)) == sorted(
    [*others, f"epoch-{begin + 1}-step-2.weights.h5", "state.json"])
again = loader_of()
SaveState(again, folder)
assert (again.epoch, again.step) == (begin + 1, 2)
""",
        numbers,
        tmp_path,
        backend=backend,
    )


def test_a_place_is_saved_once(numbers, tmp_path):
    run(
        """
class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True
saved, save_weights = [], keras.Model.save_weights
keras.Model.save_weights = lambda model, file: saved.append(os.path.basename(file)) or save_weights(model, file)
loader = loader_of()
callbacks = [Stop(), SaveState(loader, sys.argv[2], every=1)]
counting_model().fit(steps(loader, "x", "y"), steps_per_epoch=len(loader), verbose=0, callbacks=callbacks)
assert saved == ["epoch-0-step-1.weights.h5"]
""",
        numbers,
        tmp_path,
        backend="torch",
    )


def test_going_on_with_a_dataset(numbers, tmp_path):
    """What a tf.distribute strategy trains from."""
    run(
        """
from feedline.tf import Loader
def train(die_after):
    loader = Loader(pipeline, output=outputs, shuffle={"buffer_size": 50}, as_tuple=("x", "y"))
    save, model, watch = SaveState(loader, sys.argv[2], every=2), counting_model(), Watch(die_after)
    fit = dict(steps_per_epoch=len(loader), initial_epoch=loader.epoch, epochs=4, verbose=0, callbacks=[save, watch])
    try:
        model.fit(loader.dataset().repeat(), **fit)
    except InterruptedError:
        pass
    return watch
assert train(8).epochs == [[1.0] * 50]
assert train(None).epochs == [[n] * 50 for n in (2.0, 3.0, 4.0)]
""",
        numbers,
        tmp_path,
        backend="tensorflow",
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_filler_weighs_nothing(numbers, backend):
    run(
        """
model, watch = counting_model(weighted_metrics=[number]), Watch()
loader = loader_of(batch={"global_batch_size": 20, "last_batch_policy": "PAD"})
done = model.fit(steps(loader, "x", "y", "@valid"), steps_per_epoch=len(loader), epochs=2, verbose=0, callbacks=[watch])
assert watch.epochs == [[n] * 50 for n in (0.5, 1.0)]  # a batch of 20 moves a weight by half as much
assert done.history["number"] == [24.5] * 2
""",
        numbers,
        backend=backend,
    )


def test_several_inputs(numbers):
    run(
        """
inputs = {"a": keras.Input([50]), "b": keras.Input([])}
first = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs["a"])
model = keras.Model(inputs, {"one": first, "two": keras.layers.Reshape([1])(inputs["b"])})
model.compile(keras.optimizers.SGD(1.0), loss={"one": lambda y, p: -p, "two": lambda y, p: p - y})
loader = loader_of()
data = steps(loader, {"a": "x", "b": "y"}, {"one": "y", "two": "y"})
done = model.fit(data, steps_per_epoch=len(loader), epochs=2, verbose=0)
assert counts(model) == [2.0] * 50
x, y = next(steps(loader_of(), ["x", "y"], "y"))
assert type(x) is tuple and x[1] is y
""",
        numbers,
        backend="tensorflow",
    )


def test_an_older_generator_is_told(numbers):
    run(
        """
loader = loader_of()
training = steps(loader, "x", "y")
next(training)
next(steps(loader, "x", "y"))
with pytest.raises(feedline.Error, match="when another iteration of the loader began"):
    next(training)
""",
        numbers,
        backend="jax",
    )


def test_wrong_arguments(numbers, tmp_path):
    run(
        """
loader = loader_of()
refused = [
    ((loader, "image"), "the loader has no output 'image'; its outputs are x, y, @valid"),
    ((loader, "x", None, "@valid"), "give y, too"),
    ((feedline.Loader(pipeline), "n"), "give a feedline.numpy.Loader"),
    ((loader_of(as_tuple=("x", "y")), "x"), "without as_tuple"),
    ((None, "x"), "None: Keras needs a loader whose steps are dicts of arrays"),
]
for arguments, message in refused:
    for feed in steps, Validation:
        with pytest.raises(feedline.Error, match=message):
            feed(*arguments)
with pytest.raises(feedline.Error, match="SaveState: <generator .* is not a loader of feedline; give the loader that fit"):
    SaveState(steps(loader, "x"), sys.argv[2])
fit = dict(steps_per_epoch=5, verbose=0, callbacks=[SaveState(loader, sys.argv[2])])
model = counting_model()
with pytest.raises(feedline.Error, match="began epoch 1, but the feed is in epoch 0; call fit.* initial_epoch"):
    model.fit(steps(loader, "x", "y"), initial_epoch=1, epochs=2, **fit)
with pytest.raises(feedline.Error, match="fit.* has 3 steps, but an epoch of the feed has 5; call fit.* steps_per_epoch=len"):
    model.fit(steps(loader, "x", "y"), **{**fit, "steps_per_epoch": 3})
with pytest.raises(feedline.Error, match="has an unknown number of steps, but an epoch of the feed has 5"):
    model.fit(steps(loader, "x", "y"), **{**fit, "steps_per_epoch": None})
model.compile(loss="mse", steps_per_execution=3)
with pytest.raises(feedline.Error, match="steps_per_execution=3 .* an epoch has 5 steps and this epoch begins with step 0"):
    model.fit(steps(loader, "x", "y"), **fit)
unbuilt = keras.Sequential([keras.layers.Dense(1)])
unbuilt.compile(loss="mse")
with pytest.raises(feedline.Error, match="the model is not built"):
    unbuilt.fit(steps(loader, "x", "y"), **fit)
""",
        numbers,
        tmp_path,
        backend="tensorflow",
    )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_tensorflow_is_not_imported(numbers, backend):
    run("assert 'tensorflow' not in sys.modules", numbers, backend=backend)
