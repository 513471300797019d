"""Trains and exports the demo policy "around the post".

The modules, in the order of their use in a run:

    world      the arm's world: geometry, random draws, servos, judge
    camera     the picture of the world
    teacher    a scripted expert and its demonstrations
    nets       the two networks, as functions of their parameters
    fit        training of both
    weights    trained networks on disk
    onnxgraph  a small writer for ONNX graphs
    rtc        Real-Time Chunking as graph nodes
    graph      the trained policy as a graph, with the sampler unrolled
    golden     recorded inputs and outputs that a server replays before it serves
    bundle     the directory that a server loads
    export     from a trained policy to its bundle
    rollout    the closed loop that measures the policy's success
    still      a bundle that never moves the arm
    parts      the policy for robots of two arms, or of an arm and a base
"""
