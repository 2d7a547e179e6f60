"""The types in a mangled C++ name (Itanium C++ ABI, section 5.1.5), as far as kernel signatures need them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BUILTIN = {
    "v": "void",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "w": "wchar_t",
    "Dh": "half",
    "Ds": "char16_t",
    "Di": "char32_t",
    "Dn": "nullptr_t",
    "DF16_": "_Float16",
    "DF16b": "__bf16",
}
_STANDARD = {"St": "std", "Sa": "std::allocator", "Ss": "std::string"}


@dataclass(frozen=True)
class CppType:
    """A type's text, and what a launch wants to know of it."""

    text: str
    is_pointer: bool = False
    is_builtin: bool = False
    is_const: bool = False
    target_is_const: bool | None = None


class _Unreadable(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.seen: list[CppType] = []

    def peek(self, count: int = 1) -> str:
        return self.text[self.place : self.place + count]

    def accept(self, word: str) -> bool:
        if self.text.startswith(word, self.place):
            self.place += len(word)
            return True
        return False

    def remember(self, kind: CppType) -> CppType:
        self.seen.append(kind)
        return kind

    def parameters(self) -> list[CppType]:
        """What stands between `F` and `E`: the result, which is dropped, and the parameters."""
        self.accept("Y")  # extern "C"
        self.type()
        found = []
        while not self.accept("E"):
            if self.place >= len(self.text):
                raise _Unreadable
            found.append(self.type())
        return [] if [kind.text for kind in found] == ["void"] else found

    def type(self) -> CppType:
        if self.accept("P"):
            target = self.type()
            return self.remember(CppType(f"{target.text}*", is_pointer=True, target_is_const=target.is_const))
        if self.peek() in ("R", "O"):
            self.place += 1
            target = self.type()
            return self.remember(CppType(f"{target.text}&", is_pointer=True, target_is_const=target.is_const))
        if self.peek() in ("K", "V", "r"):
            return self._qualified()
        if self.accept("A"):
            count = self._match(r"\d*")
            self.accept("_")
            return self.remember(CppType(f"{self.type().text}[{count}]"))
        if self.accept("F"):
            inner = ", ".join(kind.text for kind in self.parameters())
            return self.remember(CppType(f"function({inner})"))
        for width in (5, 2, 1):
            if (word := _BUILTIN.get(self.peek(width))) and (width > 1 or self.peek() != "D"):
                self.place += width
                return CppType(word, is_builtin=True)
        return self._named()

    def _qualified(self) -> CppType:
        """Qualifiers in one run (`r`, `V`, `K`) make one type, remembered once."""
        words = self._match(r"r?V?K?")
        inner = self.type()
        text = inner.text + (" volatile" if "V" in words else "") + (" const" if "K" in words else "")
        const = inner.is_const or "K" in words
        return self.remember(CppType(text, inner.is_pointer, inner.is_builtin, const, inner.target_is_const))

    def _named(self) -> CppType:
        if self.peek() == "S" and self.peek(2) not in _STANDARD:
            kind = self._substitution()
        elif self.accept("N"):
            kind = self._nested()
        else:
            prefix = "std::" if self.accept("St") else ""
            kind = self.remember(CppType(prefix + self._name()))
        if self.peek() == "I":
            kind = self.remember(CppType(kind.text + self._template()))
        return kind

    def _nested(self) -> CppType:
        parts: list[str] = []
        while not self.accept("E"):
            if self.peek() == "S" and self.peek(2) not in _STANDARD:
                parts = [self._substitution().text]
                continue
            if self.accept("St"):
                parts.append("std")
                continue
            if self.peek() == "I":
                parts[-1] += self._template()
            else:
                parts.append(self._name())
            if self.peek() != "E":
                self.remember(CppType("::".join(parts)))
        return self.remember(CppType("::".join(parts)))

    def _template(self) -> str:
        self.accept("I")
        found = []
        while not self.accept("E"):
            if self.accept("L"):
                kind = self.type()
                value = self._match(r"n?\w*?(?=E)").replace("n", "-")
                self.accept("E")
                found.append({"bool0": "false", "bool1": "true"}.get(kind.text + value, value))
            elif self.place < len(self.text):
                found.append(self.type().text)
            else:
                raise _Unreadable
        return f"<{', '.join(found)}>"

    def _substitution(self) -> CppType:
        digits = self._match(r"S[0-9A-Z]*_")[1:-1]
        number = int(digits, 36) + 1 if digits else 0
        if number >= len(self.seen):
            raise _Unreadable
        return self.seen[number]

    def _name(self) -> str:
        length = self._match(r"\d+")
        if not length:
            raise _Unreadable
        name = self.peek(int(length))
        self.place += int(length)
        return name

    def _match(self, pattern: str) -> str:
        match = re.compile(pattern).match(self.text, self.place)
        if match is None:
            raise _Unreadable
        self.place = match.end()
        return match.group()


def function_parameters(symbol: str) -> list[CppType] | None:
    """The parameter types of the function type that the template instance `symbol` was made for; None if unreadable."""
    match = re.match(r"_Z(?:N\w*?)?\d+kgrun_signatureIF", symbol)
    if match is None:
        return None
    reader = _Reader(symbol)
    reader.place = match.end()
    reader.seen.append(CppType("kgrun_signature"))
    try:
        return reader.parameters()
    except (_Unreadable, IndexError):
        return None
