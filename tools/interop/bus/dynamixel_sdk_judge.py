"""dynamixel-sdk, the vendor's own, on a simulated Koch, OMX and a chain of AX-12A."""

import tempfile
import time
from pathlib import Path

import dynamixel_sdk as sdk

from simbus import serve, until

TORQUE, GOAL, PRESENT, MODE, HOMING, TEMPERATURE, LED, HARDWARE = 64, 116, 132, 11, 20, 146, 65, 70

AX = """name: ax
calibration: [ax]
baud: 1000000
motors:
  - {name: a, id: 1, model: ax-12a, norm: range_0_100, max_velocity: 300}
  - {name: b, id: 2, model: ax-12a, norm: range_0_100, max_velocity: 300}
"""


class Client:
    def __init__(self, path, ids, protocol=2.0):
        self.ids = ids
        self.port = sdk.PortHandler(path)
        assert self.port.openPort() and self.port.setBaudRate(1_000_000)
        self.bus = sdk.PacketHandler(protocol)
        self.patience = 2000
        self.port.setPacketTimeout = lambda length: self.port.setPacketTimeoutMillis(self.patience)

    def ok(self, result, error=0):
        assert result == sdk.COMM_SUCCESS, self.bus.getTxRxResult(result)
        assert error == 0, self.bus.getRxPacketError(error)

    def get(self, i, address, length=4):
        read = {1: self.bus.read1ByteTxRx, 2: self.bus.read2ByteTxRx, 4: self.bus.read4ByteTxRx}[length]
        value, result, error = read(self.port, i, address)
        self.ok(result, error)
        return value

    def put(self, i, address, value, length=1):
        write = {1: self.bus.write1ByteTxRx, 2: self.bus.write2ByteTxRx, 4: self.bus.write4ByteTxRx}[length]
        self.ok(*write(self.port, i, address, value))

    def sync_read(self, address, length, fast=False):
        group = sdk.GroupSyncRead(self.port, self.bus, address, length)
        for i in self.ids:
            assert group.addParam(i)
        self.ok(group.fastSyncRead() if fast else group.txRxPacket())
        assert all(group.isAvailable(i, address, length) for i in self.ids)
        return [group.getData(i, address, length) for i in self.ids]

    def sync_write(self, address, values):
        group = sdk.GroupSyncWrite(self.port, self.bus, address, 4)
        for i, v in zip(self.ids, values):
            assert group.addParam(i, list(v.to_bytes(4, "little")))
        self.ok(group.txPacket())


def koch(edge_rt, robot, ids, models):
    with serve(edge_rt, robot) as (path, _):
        c = Client(path, ids)
        assert [c.bus.ping(c.port, i)[0] for i in ids] == models
        found, result = c.bus.broadcastPing(c.port)
        assert sorted(found) == sorted(ids), f"broadcast ping finds {sorted(found)}"
        assert [found[i][0] for i in ids] == models

        for i in ids:
            c.put(i, TORQUE, 1)
        goals = [2000 + 10 * k for k in range(len(ids))]
        c.put(ids[0], GOAL, 2148, 4)
        until(lambda: c.get(ids[0], PRESENT), 2148, near=1)
        c.sync_write(GOAL, goals)
        until(lambda: c.sync_read(PRESENT, 4), goals, near=1)
        assert c.sync_read(GOAL, 4, fast=True) == goals, "fast sync read"
        assert c.sync_read(PRESENT, 4, fast=True) == c.sync_read(PRESENT, 4)

        # Different registers of different servos in one exchange.
        bulk = sdk.GroupBulkRead(c.port, c.bus)
        assert bulk.addParam(ids[0], PRESENT, 4) and bulk.addParam(ids[1], TEMPERATURE, 1)
        for read in bulk.txRxPacket, bulk.fastBulkRead:
            c.ok(read())
            assert abs(bulk.getData(ids[0], PRESENT, 4) - goals[0]) <= 1 and bulk.getData(ids[1], TEMPERATURE, 1) >= 30
        write = sdk.GroupBulkWrite(c.port, c.bus)
        assert write.addParam(ids[0], GOAL, 4, list((2048).to_bytes(4, "little"))) and write.addParam(ids[1], LED, 1, [1])
        c.ok(write.txPacket())
        until(lambda: c.get(ids[0], PRESENT), 2048, near=1)
        assert c.get(ids[1], LED, 1) == 1

        c.ok(*c.bus.regWriteTxRx(c.port, ids[1], GOAL, 4, list((2100).to_bytes(4, "little"))))
        assert c.get(ids[1], GOAL) == goals[1]
        c.ok(c.bus.action(c.port, sdk.BROADCAST_ID))  # broadcast, because the SDK would not read one servo's reply
        until(lambda: c.get(ids[1], PRESENT), 2100, near=1)

        # A goal beyond the limits, and EEPROM under torque, are refused with a reason.
        result, error = c.bus.write4ByteTxRx(c.port, ids[0], GOAL, 5000)
        assert result == sdk.COMM_SUCCESS and error == 6, f"a goal beyond the limit: error {error}, want 6, data limit"
        result, error = c.bus.write1ByteTxRx(c.port, ids[0], MODE, 4)
        assert error == 7, f"operating mode under torque: error {error}, want 7, access"

        for i in ids:
            c.put(i, TORQUE, 0)
        c.put(ids[0], MODE, 4)
        c.put(ids[0], HOMING, 1000, 4)
        assert abs(c.get(ids[0], PRESENT) - 3048) <= 1, "a homing offset of 1000 adds 1000"
        c.ok(*c.bus.clearMultiTurn(c.port, ids[0]))
        c.ok(*c.bus.reboot(c.port, ids[0]))
        time.sleep(0.6)
        assert c.get(ids[0], TORQUE, 1) == 0 and c.get(ids[0], HOMING) == 1000, "EEPROM survives a reboot"
        c.ok(*c.bus.factoryReset(c.port, ids[0], 2))
        assert c.get(ids[0], HOMING, 4) == 0, "a factory reset that keeps id and baud rate forgets the homing offset"
        c.patience = 100
        assert c.bus.ping(c.port, 99)[1] == sdk.COMM_RX_TIMEOUT
        c.port.closePort()


def stuffing(edge_rt):
    """The SDK for Python discards its own stuffing: it sends FF FF FD in a parameter as a header, with a matching length and
    CRC. A servo drops such a packet, and so does the simulated one. Both accept the same value stuffed as in the manual."""
    with serve(edge_rt, "koch", clean=False) as (path, report):
        c = Client(path, [1])
        c.put(1, MODE, 4)
        value = (-131073) & 0xFFFFFFFF  # FF FF FD FF
        c.patience = 100
        result, _ = c.bus.write4ByteTxRx(c.port, 1, HOMING, value)
        assert result == sdk.COMM_RX_TIMEOUT, f"the SDK's unstuffed packet: {c.bus.getTxRxResult(result)}; want no reply"
        c.patience = 2000
        assert c.get(1, HOMING) == 0, "an unstuffed write was executed"

        body = bytes([0x03, HOMING, 0]) + b"\xff\xff\xfd\xfd\xff"  # stuffed
        packet = [0xFF, 0xFF, 0xFD, 0, 1, len(body) + 2, 0, *body]
        crc = c.bus.updateCRC(0, packet, len(packet))
        c.port.ser.reset_input_buffer()
        c.port.ser.write(bytes([*packet, crc & 0xFF, crc >> 8]))
        reply = c.port.ser.read(11) or c.port.ser.read(11)
        end = time.monotonic() + 2
        while len(reply) < 11 and time.monotonic() < end:
            reply += c.port.ser.read(11 - len(reply))
        assert reply[8:9] == b"\x00", f"the stuffed write is answered by {reply.hex(' ')}"
        assert c.get(1, HOMING) == value, "the stuffed value is not what was written"
        c.port.closePort()
    assert report.wrong >= 1, "the simulator did not count the unstuffed packet"


def ax(edge_rt):
    with tempfile.TemporaryDirectory() as folder:
        robot = Path(folder) / "ax.yaml"
        robot.write_text(AX)
        with serve(edge_rt, str(robot)) as (path, _):
            c = Client(path, [1, 2], protocol=1.0)
            assert [c.bus.ping(c.port, i)[0] for i in c.ids] == [12, 12]
            c.put(1, 30, 600, 2)
            assert c.get(1, 24, 1) == 1, "a goal takes torque"
            until(lambda: c.get(1, 36, 2), 600, near=2)
            group = sdk.GroupSyncWrite(c.port, c.bus, 30, 2)
            for i in c.ids:
                assert group.addParam(i, [0x00, 0x02])
            c.ok(group.txPacket())
            until(lambda: [c.get(i, 36, 2) for i in c.ids], [512, 512], near=2)
            result, error = c.bus.write2ByteTxRx(c.port, 1, 30, 2000)
            assert error == 8, f"a goal out of range: error {error}, want 8"
            c.port.closePort()


PARTS = {
    "Koch: ping, read, write, sync, fast sync, bulk and fast bulk, refusals, clear, reboot, factory reset": lambda e: koch(
        e, "koch", [1, 2, 3, 4, 5, 6], [1060, 1060, 1200, 1200, 1200, 1200]
    ),
    "OMX: the same": lambda e: koch(e, "omx", [11, 12, 13, 14, 15, 16], [1060, 1060, 1060, 1200, 1200, 1200]),
    "its stuffing bug, and the same value stuffed by the book": stuffing,
    "AX-12A on protocol 1.0": ax,
}
