"""feetech-servo-sdk, the vendor's own, on a simulated SO-101."""

import scservo_sdk as sdk

from simbus import serve, until

IDS = [1, 2, 3, 4, 5, 6]
TORQUE, GOAL, PRESENT, LOCK, OFFSET, MIN = 40, 42, 56, 55, 31, 9


class Client:
    def __init__(self, path):
        self.port = sdk.PortHandler(path)
        assert self.port.openPort() and self.port.setBaudRate(1_000_000)
        self.bus = sdk.PacketHandler(0)
        self.patience = 2000
        # The SDK gives up after 34 ms, which a busy host alone can take.
        self.port.setPacketTimeout = lambda length: self.port.setPacketTimeoutMillis(self.patience)

    def ok(self, result, error=0):
        assert result == sdk.COMM_SUCCESS, self.bus.getTxRxResult(result)
        assert error == 0, f"error byte {error:#x}"

    def sync_read(self, address, length, ids=IDS):
        group = sdk.GroupSyncRead(self.port, self.bus, address, length)
        for i in ids:
            assert group.addParam(i)
        result = group.txRxPacket()
        return result, {i: group.getData(i, address, length) for i in ids if group.isAvailable(i, address, length)}

    def sync_write(self, address, values):
        group = sdk.GroupSyncWrite(self.port, self.bus, address, 2)
        for i, v in zip(IDS, values):
            assert group.addParam(i, [sdk.SCS_LOBYTE(v), sdk.SCS_HIBYTE(v)])
        self.ok(group.txPacket())

    def positions(self):
        result, got = self.sync_read(PRESENT, 2)
        self.ok(result)
        return [got[i] for i in IDS]


def so101(edge_rt):
    with serve(edge_rt, "so101") as (path, _):
        c = Client(path)
        for i in IDS:
            model, result, error = c.bus.ping(c.port, i)
            c.ok(result, error)
            assert model == 777, f"servo {i}: model {model}, want 777"
        assert [c.bus.read1ByteTxRx(c.port, 1, a)[0] for a in (0, 1)] == [3, 10], "firmware"

        # A goal becomes a position, by write and by sync write.
        for i in IDS:
            c.ok(*c.bus.write1ByteTxRx(c.port, i, TORQUE, 1))
        c.ok(*c.bus.write2ByteTxRx(c.port, 1, GOAL, 2148))
        until(lambda: c.bus.read2ByteTxRx(c.port, 1, PRESENT)[0], 2148, near=1)
        goals = [2000 + 10 * i for i in IDS]
        c.sync_write(GOAL, goals)
        until(c.positions, goals, near=1)
        result, got = c.sync_read(GOAL, 2)
        assert [got[i] for i in IDS] == goals, got

        # A registered write waits for its action.
        c.ok(*c.bus.regWriteTxRx(c.port, 2, GOAL, 2, [0, 8]))
        assert c.bus.read2ByteTxRx(c.port, 2, GOAL)[0] == goals[1]
        c.ok(c.bus.action(c.port, sdk.BROADCAST_ID))
        until(lambda: c.bus.read2ByteTxRx(c.port, 2, PRESENT)[0], 2048, near=1)

        # A limp arm sinks: shoulder_lift moves, shoulder_pan does not. A goal switches torque on, the simulator's default.
        for i in IDS:
            c.ok(*c.bus.write1ByteTxRx(c.port, i, TORQUE, 0))
        until(lambda: c.bus.read2ByteTxRx(c.port, 2, PRESENT)[0], 1024, near=1)
        assert c.bus.read2ByteTxRx(c.port, 1, PRESENT)[0] == goals[0]
        assert c.bus.read1ByteTxRx(c.port, 2, TORQUE)[0] == 0
        c.ok(*c.bus.write2ByteTxRx(c.port, 2, GOAL, 1500))
        assert c.bus.read1ByteTxRx(c.port, 2, TORQUE)[0] == 1
        until(lambda: c.bus.read2ByteTxRx(c.port, 2, PRESENT)[0], 1500, near=1)

        # Calibration: limits and offset stay in the unlocked EEPROM, and the offset shifts the readings.
        for i in IDS:
            c.ok(*c.bus.write1ByteTxRx(c.port, i, TORQUE, 0))
            c.ok(*c.bus.write1ByteTxRx(c.port, i, LOCK, 0))
        before = c.bus.read2ByteTxRx(c.port, 5, PRESENT)[0]
        c.ok(*c.bus.write2ByteTxRx(c.port, 5, OFFSET, 0x0800 | 100))  # -100: sign and magnitude, bit 11
        c.ok(*c.bus.write2ByteTxRx(c.port, 5, MIN, 1000))
        assert c.bus.read2ByteTxRx(c.port, 5, PRESENT)[0] == before + 100, "an offset of -100 adds 100"
        assert c.bus.read2ByteTxRx(c.port, 5, MIN)[0] == 1000

        # Servo 9 is absent and does not answer. The SDK then also loses the servos listed after it, although they have
        # answered: of 1 2 9 4 it returns 1 and 2. This is a bug of the SDK; our driver therefore matches replies by id.
        c.patience = 100
        assert c.bus.ping(c.port, 9)[1] == sdk.COMM_RX_TIMEOUT
        result, got = c.sync_read(PRESENT, 2, [1, 2, 9, 4])
        assert result != sdk.COMM_SUCCESS and sorted(got) == [1, 2], f"the SDK has {sorted(got)} of 1 2 9 4, want 1 2"
        c.port.closePort()


PARTS = {"SO-101: ping, read, write, sync read, sync write, registered write, a limp arm, calibration; its loss of the servos after a silent one": so101}
