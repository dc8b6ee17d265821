"""What a crash would cost now: rates, margins and pressure, learnt on this machine."""
