"""Trains and exports the demo policy "around the post".

The pieces, in the order a run uses them:

    world      the world the arm acts in: geometry, random draws, servos, judge
    camera     the picture of it
    teacher    a scripted expert and the demonstrations it gives
    nets       the two networks, as functions of their parameters
    fit        training of both
    weights    trained networks on disk
    onnxgraph  a small writer for ONNX graphs
    rtc        Real-Time Chunking as graph nodes
    graph      the trained policy as a graph, with the sampler unrolled
    golden     recorded inputs and outputs that a server replays before it serves
    bundle     the directory that a server loads
    export     from a trained policy to its bundle
    rollout    the closed loop that tells whether the result is any good
    still      the bundle that stands still
"""
