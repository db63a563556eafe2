"""Codebooks of the iq formats: which points of a lattice their indices mean.

An iq2 or iq1 index names eight numbers, an iq3 index four, each one of a few levels. Of all such
points a format uses some, in order, the first number changing fastest; so a codebook is one bit a
point of the lattice. The bits stand here packed (zlib, base 85). Which points are used was found
by ggml's authors and is a fact of the formats; source: ggml-common.h.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache

import numpy as np
import numpy.typing as npt

Levels = npt.NDArray[np.int8]

NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)
"""What the sixteen numbers of iq4_nl and iq4_xs stand for."""

E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)
"""What the sixteen numbers of mxfp4 and nvfp4 stand for, doubled."""

_IQ2_LEVELS = (8, 25, 43)

_IQ2_XXS = (
    "c-nPRORB^$43oj#tB`je2YP^R=KfcCw)5@K5e=lV<VbEmf91ogR%p3E0BR^O#16P=^@J3)+t0mx___f>P^zDolEn"
    "6;is&dxI!#Zg_{KuzkVd4Mw`?l*l~*(z5~c8Qj-!-YZym34v`$TQ4<4*~)dpL;rq|+W4irx`d$&)6^vGb7UkLBrz"
    "cFbHqcf>sMFwRxr;MTG;*}m%Qlby-@@TSk)X7om@@#uKQIjUUWQ&$2&y}*gX5TV=Bc|Cuh1wL(2Kn3A3Yj<N%;gb"
    "lzhT7_jxp@MF=lA5st5R^Hl2J=^JV`E{Z0D^#$6R7"
)
_IQ2_XS = (
    "c-mc2TdsvL2pkgnkBRPwCicH3cK=&BJX-bM<{ZTW!^|+oxJIi-qkD|rsuaR~iB<*?x~C4>8J0pJW<V>X*vo#SY&("
    "-c)w(<-fCU6QVt|)*=>oJ=N8h~B3mmYKBw*Y)Ca<s*uvOak7T*la5<g=kAh?T96(5+bR(Mt@J=L5^n!u1sF+~=p="
    "RjVCGbM+vDH*59tF!>kC`)-u3GzO}jM8X_r-*1ytubG*&a^iqGs?p-do}D8x2NWXU?%O)=7t88q040RdJ=Ak)9T+"
    "$YBcFD31^6BC_W+mG1}iEA-T}Oj@u6-pQ1yByIl9%`W3mW#F%j~<yh(N0zSL~oH^Zy%}}tQx4=M73#xoc?jNErTm"
    "D?iDs40;(&MG>YYMNuDE=SK;cc#9vM%q_=>7msuqjC"
)
_IQ2_S = (
    "c-n1JU5W-F3~NE(E9iYHjPDBe{#V(wI=kPpE5rQ7#3X8F%Z9aF@G^(h-0EI3Em0|W3^QwctZ7zp0a8G#rYWS&oF&"
    "YfEj@sgh^u5FBBgC>LAkBEEtarKv-X}c)kMD5E9g)N*35uFS6j&;COQ!QC2=T0oAzp}=fs8f?3xctXeG?g^dQAA!"
    "2(KVP=j1x!<Qgx@l7F)Pu!TMd$m>{ZzEray(N$AzRb24)#*U9zYZZF^+2!@EVQ9?ARiEH!J<ErE8usn4?()-BQhW"
    "*1pE<<S|Z6aT82aQO}QP4+el6zUY~*z7~Sl6pK?p!Q_DMIhH4w7?joIO9P^#Dw9CRS7mu8OBC|vDii4FoWN_zK9m"
    "?6y$}qXC*pyH_2f!)+bXep&HXz~CYasM7Fd3(JhmM~KIbkHJ7yU4;E692~{FNElHOf~Fzm+TBn!W(JyjC6"
)
_IQ3_XXS = (
    "c-l=-F%H5o3_M%0RAmZ7_lgPeigaLyA4Q!IuVCbv_?)J2Rn;aw-<^~BWtxCXwzFx0%xW)eST<YW5KL&L;j#hAAHo"
    "X-c)&}FY<X@1m|7IGsjrX>q7@bAuHrcP3L2_`6x)_>^v5;&o?@Fdagv_Uo9H*utGOGEJ93R6P|L2rgx{U}Y-UnrS"
    "3sKYtPIbF!WdDS7|dsT<9UQCqzhJe8+4kK5km%XvHjm=J(sMgqk-e3v^zjTJayVggoDWMJzTWE4a0T)3l-9P!ydl"
    "NePrBA?Xny*@kmBo4W|8$?wEo20v5Uy_5"
)
_IQ3_S = (
    "c-k#d!AiqG5PdVu!e&pqA>uXNMyUCUt<-~hDT4SrX{pfmmf{D9Rs{Q#&TgE;z`Qr}-rMBob#A|%IbF{W(Id*&Lkw"
    "q!%0~0(%@Ao{OU0lD_x2OXCI^OquXIKLt}o^pYnG?L6&oz+9HeSVPSrN(A}t!YmF^Xmp*3Qy-5G8(e|b5Y-VC?q("
    "AA>+32wuC)HmEXp@c1}PT|h83}iuXSwt^ePGkv?U+Lf3a_=1ov?9@{igP&9v4ypFswx3&TJZ@M2_=SuX>*z&qp%+"
    "CoXl)ge8!drA@5Agyn!FG+()?*sDei}n1QT95(J|p-wR7#Aht{0!Hx!aZfy;cl!bD4D3uqR(zW`GY5;6>@R{_|3X"
    "$jRqNR^eu)^e<Ll^vCYlKPU1;QQ+o$IB(hKom+bHx0SXmXXwyZnVo8~6jd#wQ>"
)
_IQ1_S = (
    "c-k#eK}(!R7=CxE;dM-9V?RN1diSfb(^(PgE$L;EU0C#DLh=VZ*|bQ>IZZw%yXlwN6ha`hG?#HO$v6$G@ldv(umM"
    "k2dT8mb2WdTox*h^v8VtnDuD#8?@Vw9Syw7v(LR2?w<}y}3b9YJG^C&5*&qs>Nl?x;NhAB!%0hRecnsm$a2YwJ@;"
    "QqccSPG~@n#@N5uBY$^gNY22s7}?HYgoxmY#Y+!Ajh1yxWA4l1OzVO1-XRyWBes^wA;LAoBq<x!%nuPhFWp9`{&R"
    "@7DG%<XIwD^Is3Q$Jf@<B<<hd(0^?jzIHG8vQn*?-$Ub(LsHW&@kYNcQ%|}dP%c;av8KJU^mWiJv*28-WD<$YEG%"
    "#}+D!ES;XeDuFD(VlG#i@A4$V;H%7rH52w&LB_pg1xSvl=L<CZ@9?{WdkSxbxSuMq|l64F4MqT|O(RS}O@H(bLXv"
    "Hn!_OntvSw2GXTKiD_6XGLxujp0!)qyF+V=7Bv?g3oFy??D1-6?{(2le%HQrc>Le(m#@Cb_P%)g$;r#{<KcsUbe#"
    "9?p_<1{H>jE?+1SCIq;Fwj@yPMjA_U90?}vdY$)D1%>fQq-z{36HBT$I&mG*v%J#A~V%aSj@pZtCEAg}V1eou`2@"
    "uUxU_YQ=)6;l3U7EjmAKr#y2F0kdO91c}@u6ikZ68>90+)KINV7E3oVy0wcNC7Qg*Gnz$6Ckekcj5w;yQl$8BcV}"
    "uIeIA*;9XR~L2uzcrHYS+2)y-rqrtcg6e{stpn$cM#il(dTBx(R&0u-;P1DmAvG}u@dX;b%ns9v~6p49X^c}lqEM"
    "lIFjzJBbrp$X4T{{D_p5YV7e^~xM<^E7<_56qcAaL=FI+lT|4v2#Y&dpW2-Egd@Fdf5G@Dheeu*|v(bMFD;1sQ1"
)


@cache
def signs() -> npt.NDArray[np.uint8]:
    """Eight signs for each number of seven bits: an even number of them is negative."""
    numbers = np.arange(128, dtype=np.uint8)
    bits = np.unpackbits(numbers[:, np.newaxis], axis=1)
    odd = (bits.sum(axis=1) % 2).astype(np.uint8)
    both: npt.NDArray[np.uint8] = numbers | odd << np.uint8(7)
    return both


@cache
def iq2_xxs() -> Levels:
    """[256, 8]."""
    return _points(_IQ2_XXS, _IQ2_LEVELS, 8)


@cache
def iq2_xs() -> Levels:
    """[512, 8]."""
    return _points(_IQ2_XS, _IQ2_LEVELS, 8)


@cache
def iq2_s() -> Levels:
    """[1024, 8]."""
    return _points(_IQ2_S, _IQ2_LEVELS, 8)


@cache
def iq3_xxs() -> Levels:
    """[256, 4]."""
    return _points(_IQ3_XXS, (4, 12, 20, 28, 36, 44, 52, 62), 4)


@cache
def iq3_s() -> Levels:
    """[512, 4]."""
    return _points(_IQ3_S, (1, 3, 5, 7, 9, 11, 13, 15), 4)


@cache
def iq1() -> Levels:
    """[2048, 8], for iq1_s and iq1_m."""
    return _points(_IQ1_S, (-1, 0, 1), 8)


def _points(packed: str, levels: tuple[int, ...], n: int) -> Levels:
    """The points of a codebook, [points, n]."""
    raw = np.frombuffer(zlib.decompress(base64.b85decode(packed)), dtype=np.uint8)
    places = np.flatnonzero(np.unpackbits(raw, bitorder="little"))
    digits = places[:, np.newaxis] // len(levels) ** np.arange(n) % len(levels)
    points: Levels = np.array(levels, dtype=np.int8)[digits]
    points.setflags(write=False)
    return points
