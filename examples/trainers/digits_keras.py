"""Trains a classifier of handwritten digits with Keras, and the same one with tf.data for comparison.

    python examples/trainers/digits_keras.py --epochs 10
    KERAS_BACKEND=jax python examples/trainers/digits_keras.py
    python examples/trainers/digits_keras.py --loader tf.data
"""

import argparse
import os

import keras

import feedline

HERE = os.path.dirname(os.path.abspath(__file__))


def fed_by_feedline(pipeline):
    """Returns what fit() takes: the steps, and how many an epoch has."""
    from feedline.keras import steps
    from feedline.numpy import Loader

    loader = Loader(pipeline, shuffle={"buffer_size": 150}, batch={"global_batch_size": 16, "last_batch_policy": "DROP"})
    return steps(loader, "image", "label"), len(loader)


def fed_by_tf_data(pipeline):
    import tensorflow as tf

    def parse(record):
        features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        example = tf.io.parse_single_example(record, features)
        image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [8, 8, 1])
        return (tf.cast(image, tf.float32) / 255 - 0.5) / 0.25, example["label"]

    with feedline.Loader(pipeline) as loader:
        files, samples = loader.files, loader.samples_per_epoch
    dataset = tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=tf.data.AUTOTUNE).shuffle(150)
    return dataset.batch(16, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE), samples // 16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=os.path.join(HERE, "..", "digits.textproto"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--loader", choices=["feedline", "tf.data"], default="feedline")
    flags = parser.parse_args()

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Flatten(), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 1)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    data, steps = (fed_by_feedline if flags.loader == "feedline" else fed_by_tf_data)(flags.pipeline)
    history = model.fit(data, steps_per_epoch=steps, epochs=flags.epochs, verbose=0).history
    print(f"accuracy {history['accuracy'][-1]:.4f}")


if __name__ == "__main__":
    main()
