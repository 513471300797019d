"""Trains and exports the demo policy "around the post".

The pieces, in the order a run uses them:

    world     the world the arm acts in: geometry, random draws, servos, judge, camera
    teacher   a scripted expert and the demonstrations it gives
    nets      the two networks and their parameters, in JAX
    fit       training of both
    graph     the same networks, written down as an ONNX graph with the sampler unrolled
    golden    recorded inputs and outputs that a server replays before it serves
    bundle    the directory that a server loads
    rollout   the closed loop that tells whether the result is any good
"""
