"""Formats dates with CPython. Prints one JSON object per line.

    pip install tzdata==2026.6
    python3 tests/reference_data/strftime_table.py > crates/lang/tests/data/strftime.jsonl

Run it on Linux, with the locale C: other systems do not support the `%-d` forms.
"""

import json
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

MOMENTS = [
    (0, "UTC"),
    (951_827_696_000_000, "UTC"),
    (1_704_067_199_999_999, "America/New_York"),
    (1_704_067_200_000_000, "Europe/Oslo"),
    (1_719_835_445_000_120, "Asia/Kolkata"),
    (1_730_000_400_000_000, "Europe/London"),
    (1_709_210_096_500_000, "Pacific/Auckland"),
    (1_735_625_103_000_000, "America/St_Johns"),
    (1_763_726_400_123_456, "Asia/Kathmandu"),
    (1_799_999_999_000_000, "America/Sao_Paulo"),
    (-86_400_000_000, "Africa/Monrovia"),
    (4_102_444_799_000_001, "Etc/GMT+5"),
]
PLAIN = "d m Y y B b h A a H I M S f p j U W V G g u w C e k l Z z c x X D F T R r n t P".split() + ["%"]
FORMATS = ["%" + code for code in PLAIN]
FORMATS += ["%-" + code for code in "d m H I M S j y U W V".split()]
FORMATS += ["%_d", "%_H", "%0e", "%^a", "%^B", "%#p"]
FORMATS += [
    "%A, %d %B %Y at %I:%M %p (%Z)",
    "%-d.%-m.%Y %H:%M:%S.%f %z",
    "100%% on %Y-%m-%d",
    "no code",
    "",
    "ärgerlich: %d. %B",
]
METHODS = {
    "str": lambda d: str(d),
    "isoformat": lambda d: d.isoformat(),
    "isoformat_minutes": lambda d: d.isoformat(" ", "minutes"),
    "isoformat_millis": lambda d: d.isoformat(timespec="milliseconds"),
    "tzname": lambda d: d.tzname(),
    "date": lambda d: str(d.date()),
    "date_iso": lambda d: d.date().isoformat(),
    "date_strftime": lambda d: d.date().strftime("%d/%m/%Y %H:%M %Z"),
    "time": lambda d: str(d.time()),
    "time_strftime": lambda d: d.time().strftime("%H:%M:%S.%f %Y"),
    "weekday": lambda d: str(d.weekday()),
    "isoweekday": lambda d: str(d.isoweekday()),
    "timestamp": lambda d: str(d.timestamp()),
    "utcoffset": lambda d: str(d.utcoffset()),
    "utcoffset_seconds": lambda d: str(d.utcoffset().total_seconds()),
    "attributes": lambda d: f"{d.year} {d.month} {d.day} {d.hour} {d.minute} {d.second} {d.microsecond}",
}

for micros, zone in MOMENTS:
    seconds, rest = divmod(micros, 1_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest).astimezone(ZoneInfo(zone))
    place = {"micros": micros, "zone": zone}
    for text in FORMATS:
        print(json.dumps(place | {"format": text, "text": moment.strftime(text)}, ensure_ascii=False))
    for name, method in METHODS.items():
        print(json.dumps(place | {"method": name, "text": method(moment)}, ensure_ascii=False))
