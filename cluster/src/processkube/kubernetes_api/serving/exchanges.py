"""One HTTP exchange: reads the request and the form of response that the client wants, and writes the response."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import ApiError, BadRequest, NotAcceptable, UnsupportedMediaType
from processkube.kubernetes_api.objects.objects import Object, decode, encode
from processkube.kubernetes_api.serving.protobuf import MEDIA_TYPE as PROTOBUF
from processkube.kubernetes_api.serving.protobuf import decode_protobuf
from processkube.kubernetes_api.serving.tables import partial_metadata, table
from processkube.kubernetes_api.serving.yaml_bodies import read_yaml
from processkube.kubernetes_api.writing.admitting import FieldValidation
from processkube.kubernetes_api.writing.resources import WriteOptions

_GENERIC_AGENT = re.compile(r"^(python|aiohttp|openapi-generator|curl|go-http-client|wget|httpx|mozilla)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The form of a response: complete objects, a Table, or only metadata."""

    form: str = ""
    include: str = "Metadata"


def wanted_output(request: web.Request) -> Output:
    """Return the form of response that the Accept header requests. Raises NotAcceptable if the server has no form that
    the header lists.
    """
    accept = request.headers.get("Accept", "") or "*/*"
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in {"application/json", "application/*", "*/*", "application/yaml"}:
            continue
        form = options.get("as", "")
        if form in {"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"} and options.get("v", "v1") == "v1":
            include = request.query.get("includeObject", "Metadata")
            return Output(form=form.removesuffix("List") if form != "Table" else form, include=include)
    raise NotAcceptable("only the following media types are accepted: application/json")


def transformed(kind: ResourceKind, item: Object, output: Output, now: datetime) -> Object:
    """Return one object in the wanted form."""
    match output.form:
        case "Table":
            version = item["metadata"].get("resourceVersion", "")
            if set(item["metadata"]) <= {"resourceVersion", "creationTimestamp", "annotations"}:  # a bookmark
                return {**table(kind, (), version=version, include=output.include, now=now), "rows": []}
            return table(kind, [item], version=version, include=output.include, now=now)
        case "PartialObjectMetadata":
            return partial_metadata(item)
    return item


async def read_body(request: web.Request) -> Any:
    """Return the decoded body; None if there is no body. Raises BadRequest and UnsupportedMediaType."""
    body = await request.read()
    if not body:
        return None
    media = request.content_type
    try:
        if media == PROTOBUF:
            return decode_protobuf(body)
        if "yaml" in media:
            return read_yaml(body)
        if "json" in media or media in {"application/octet-stream", "text/plain", "*/*"}:
            return decode(body)
    except ValueError as error:
        raise BadRequest(f"the body of the request could not be decoded: {error}") from error
    raise UnsupportedMediaType(
        f"the body of the request was in an unknown format ({media}) - accepted media types include: application/json, application/yaml"
    )


def is_true(text: str | None) -> bool:
    return text in {"true", "True", "1", "t"}


def dry_run(request: web.Request) -> bool:
    given = request.query.getall("dryRun", [])
    if any(one != "All" for one in given):
        raise BadRequest(f'dryRun: Unsupported value: {given[0]!r}: supported values: "All"')
    return bool(given)


def write_options(request: web.Request, username: str) -> WriteOptions:
    """Return the options of a write, from the request's query. Raises BadRequest for an invalid value."""
    query = request.query
    validation = query.get("fieldValidation", FieldValidation.WARN.value) or FieldValidation.WARN.value
    if validation not in set(FieldValidation):
        raise BadRequest(f'fieldValidation: Unsupported value: "{validation}": supported values: "Ignore", "Warn", "Strict"')
    return WriteOptions(
        field_manager=query.get("fieldManager") or _agent(request) or username,
        dry_run=dry_run(request),
        field_validation=FieldValidation(validation),
        force=is_true(query.get("force")),
    )


def _agent(request: web.Request) -> str:
    """Return the name of the client program, from its User-Agent; "" if the User-Agent names only a library or is
    missing.
    """
    name = request.headers.get("User-Agent", "").split("/")[0].strip()
    return "" if _GENERIC_AGENT.match(name) else name


def answer(value: Object, *, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    return raw_answer(encode(value), status=status, warnings=warnings)


def raw_answer(body: bytes, *, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    response = web.Response(body=body, status=status, content_type="application/json")
    for warning in warnings:
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


def error_answer(error: ApiError) -> web.Response:
    response = answer(error.status(), status=error.code)
    response.headers.update(error.headers)
    return response


def success(kind: ResourceKind, name: str, uid: str) -> Object:
    details: Object = {"name": name, "kind": kind.plural, "uid": uid}
    if kind.group:
        details["group"] = kind.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
