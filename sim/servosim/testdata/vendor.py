"""The vendor's own SDK against the simulated bus: python vendor.py DEVICE.

Needs feetech-servo-sdk 1.0.0. Servo 3 reports an overload in every packet.
"""
import sys
import scservo_sdk as sdk

IDS = [1, 2, 3, 4, 5, 6]
TORQUE, GOAL, PRESENT = 40, 42, 56

port = sdk.PortHandler(sys.argv[1])
assert port.openPort() and port.setBaudRate(1_000_000)
bus = sdk.PacketHandler(0)
# The SDK gives up after 34 ms, which a busy host alone can take.
port.setPacketTimeout = lambda length: port.setPacketTimeoutMillis(PATIENCE)
PATIENCE = 5000


def ok(result, error=0, want=0):
    assert result == sdk.COMM_SUCCESS, bus.getTxRxResult(result)
    assert error == want, f"error byte {error:#x}, want {want:#x}"


def sync_read(address, length):
    group = sdk.GroupSyncRead(port, bus, address, length)
    for i in IDS:
        assert group.addParam(i)
    ok(group.txRxPacket())
    assert all(group.isAvailable(i, address, length) for i in IDS)
    return [group.getData(i, address, length) for i in IDS]


def sync_write(address, values):
    group = sdk.GroupSyncWrite(port, bus, address, 2)
    for i, v in zip(IDS, values):
        assert group.addParam(i, [sdk.SCS_LOBYTE(v), sdk.SCS_HIBYTE(v)])
    ok(group.txPacket())


def until(read, want):
    for _ in range(5000):
        got = read()
        if got == want:
            return
    raise AssertionError(f"stays at {got}, want {want}")


for i in IDS:
    model, result, error = bus.ping(port, i)
    ok(result, error, 0x20 if i == 3 else 0)
    assert model == 777, f"servo {i}: model {model}, want 777"

version = [bus.read1ByteTxRx(port, 1, a)[0] for a in (0, 1)]
assert version == [3, 10], f"firmware {version}, want 3.10"
limit, result, error = bus.read2ByteTxRx(port, 3, 11)
ok(result, error, 0x20)
assert limit == 4095, f"upper limit {limit}, want 4095 in spite of the fault"

for i in IDS:
    ok(*bus.write1ByteTxRx(port, i, TORQUE, 1), 0x20 if i == 3 else 0)
ok(*bus.write2ByteTxRx(port, 1, GOAL, 2148))
until(lambda: bus.read2ByteTxRx(port, 1, PRESENT)[0], 2148)

goals = [2000 + 10 * i for i in IDS]
sync_write(GOAL, goals)
until(lambda: sync_read(PRESENT, 2), goals)
assert sync_read(GOAL, 2) == goals

ok(*bus.regWriteTxRx(port, 2, GOAL, 2, [0, 8]))
assert bus.read2ByteTxRx(port, 2, GOAL)[0] == goals[1], "a registered write acts before its action"
ok(bus.action(port, sdk.BROADCAST_ID))
until(lambda: bus.read2ByteTxRx(port, 2, PRESENT)[0], 2048)

PATIENCE = 50
model, result, error = bus.ping(port, 9)
assert result == sdk.COMM_RX_TIMEOUT, f"servo 9 is not there: result {result}, want a timeout"

for i in IDS:
    ok(*bus.write1ByteTxRx(port, i, TORQUE, 0), 0x20 if i == 3 else 0)
port.closePort()
print("accepted")
